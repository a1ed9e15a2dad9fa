"""How fast the dashboard opens and zooms."""
