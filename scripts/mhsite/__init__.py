"""The site's machinery: what a page is made of, and what is made of a page."""
