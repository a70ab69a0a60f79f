"""The Kubernetes API: client, watches, queue, Events, leader election. Nothing here knows of farms."""
