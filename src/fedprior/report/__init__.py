"""Numbers in, text and pictures out. What draws or prints (matplotlib, rich) is imported where it is first used."""
