"""The tasks that ship with fedprior, as TOML files."""
