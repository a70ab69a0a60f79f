"""The connections of farms: which may go on, and the end of the others, once for all engines."""
