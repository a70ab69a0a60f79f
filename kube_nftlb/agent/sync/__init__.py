"""The loop: farms that changed are decided on, applied, verified and, when damaged, repaired."""
