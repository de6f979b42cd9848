"""Figures on npusim's own speed: what ``npusim bench`` measures and how."""
