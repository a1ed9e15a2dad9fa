"""Pages, a file each: what one question needs, laid out. `PAGES` is their order in the navigation."""
