"""`meshnode service`: has the system run the node, by systemd, launchd or the Windows Task Scheduler."""
