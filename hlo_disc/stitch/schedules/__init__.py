"""The schedules: how groups are computed, with a folder or file for each kind of group."""
