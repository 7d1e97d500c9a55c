"""A comparison as one HTML file that needs nothing beside itself."""

from plait.lab.page.charts import check_report_extra
from plait.lab.page.html import render_page, render_served_page, render_tables_page

__all__ = ["check_report_extra", "render_page", "render_served_page", "render_tables_page"]
