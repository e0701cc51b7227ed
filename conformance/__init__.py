"""The same cases on every target, judged by error bounds."""
