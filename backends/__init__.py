"""The in-tree backends, one folder a vendor; none imports another."""
