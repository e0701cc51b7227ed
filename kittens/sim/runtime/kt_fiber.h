// The switch between fibers: saves what the calling convention says a callee must keep, swaps stacks, goes on there.
#pragma once
#include <signal.h>

extern "C" void kt_fiber_switch(void** save, void* to);

#if defined(__APPLE__)
#define KT_FIBER_SYMBOL "_kt_fiber_switch"
#define KT_FIBER_HEAD ".text\n.globl _kt_fiber_switch\n.private_extern _kt_fiber_switch\n.p2align 4\n"
#else
#define KT_FIBER_SYMBOL "kt_fiber_switch"
#define KT_FIBER_HEAD \
  ".text\n.globl kt_fiber_switch\n.hidden kt_fiber_switch\n.type kt_fiber_switch, %function\n.p2align 4\n"
#endif

#if defined(__x86_64__)

// The jump instead of a return: a return to another stack is always predicted wrongly.
asm(KT_FIBER_HEAD KT_FIBER_SYMBOL R"(:
  popq %rdx
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  pushq %rdx
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %rdx
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  jmpq *%rdx
)");

// A stack on which the first switch enters `start`, which never returns.
static inline void* kt_fiber_prepare(char* top, void (*start)()) {
  void** s = reinterpret_cast<void**>(reinterpret_cast<unsigned long long>(top) & ~15ull);
  *--s = nullptr;  // as after a call: the stack is 8 off a multiple of 16
  for (int i = 0; i < 6; i++) *--s = nullptr;
  *--s = reinterpret_cast<void*>(start);
  return s;
}

#elif defined(__aarch64__)

asm(KT_FIBER_HEAD KT_FIBER_SYMBOL R"(:
  stp x19, x20, [sp, #-160]!
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x19, x20, [sp], #160
  br x30
)");

static inline void* kt_fiber_prepare(char* top, void (*start)()) {
  void** s = reinterpret_cast<void**>((reinterpret_cast<unsigned long long>(top) & ~15ull) - 160);
  for (int i = 0; i < 20; i++) s[i] = nullptr;
  s[11] = reinterpret_cast<void*>(start);  // x30
  return s;
}

#else
#error "kittens.sim switches fibers on x86-64 and arm64 only"
#endif

// For the handler of a signal, given what the system gave it: when it returns, the thread goes on in `start`, which never
// returns, on a fresh stack. A handler that leaves by a switch would do on Linux. macOS takes the thread to be on its
// signal stack until the handler returns: the next signal would find no stack.
static inline void kt_fiber_go_on(void* interrupted, char* top, void (*start)()) {
  auto& state = static_cast<ucontext_t*>(interrupted)->uc_mcontext;
  auto stack = reinterpret_cast<unsigned long long>(top) & ~15ull, code = reinterpret_cast<unsigned long long>(start);
#if defined(__x86_64__)
  stack -= 8;  // as after a call
#endif
#if defined(__APPLE__) && defined(__x86_64__)
  state->__ss.__rsp = stack;
  state->__ss.__rip = code;
#elif defined(__APPLE__)
  state->__ss.__sp = stack;
  state->__ss.__pc = code;
#elif defined(__x86_64__)
  state.gregs[REG_RSP] = static_cast<long long>(stack);
  state.gregs[REG_RIP] = static_cast<long long>(code);
#else
  state.sp = stack;
  state.pc = code;
#endif
}
