"""What is built from the lessons beside the notebooks: the site, the teacher's edition, and what is handed out."""
