"""How groups are computed: one folder or file a kind of group."""
