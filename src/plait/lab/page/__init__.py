"""A comparison as one HTML file that needs nothing beside itself."""

from plait.lab.page.charts import ready
from plait.lab.page.html import page, served_page

__all__ = ["page", "ready", "served_page"]
