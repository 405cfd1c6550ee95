"""What finds and names features: concepts and their detectors, splits, spans, reports and the browser of features."""
