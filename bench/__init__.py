"""Workloads, peers, rooflines and history."""
