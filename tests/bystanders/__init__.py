"""Services that nobody touches while others change: who tries them, what is changed, and what was felt of it."""
