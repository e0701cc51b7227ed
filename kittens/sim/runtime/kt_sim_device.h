// What a vendor's shim builds on: the runtime, and the macros by which device functions say where they are called.
#pragma once
#include "kt_sim.h"

#define KT_SITE , const kt_sim::Site* kt_site = __builtin_source_location()
#define KT_SITE_ONLY const kt_sim::Site* kt_site = __builtin_source_location()
#define KT_HERE kt_sim::worker->site = kt_site, kt_sim::worker->function = __func__
#define KT_PASS_SITE , kt_site
// The message, if there is one, is told; else the condition.
#define KT_ASSERT(condition, ...)                                                                                  \
  ((condition) ? (void)0                                                                                           \
               : kt_sim::kt_sim_fault(kt_sim::FaultKind::Assertion, nullptr, __builtin_source_location(), "%s",    \
                                      *#__VA_ARGS__ ? "" __VA_ARGS__ : #condition " does not hold"))
#define KT_PRINT(...) kt_sim::kt_sim_print(__VA_ARGS__)
#define KT_LOC(n) kt_sim::worker->lane->mark = (n)
