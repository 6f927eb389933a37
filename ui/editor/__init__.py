"""What the pages of the editor show: sections as an outline, one of them as fields, who else is here."""
