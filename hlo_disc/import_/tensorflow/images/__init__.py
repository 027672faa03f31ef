"""Images: resizing, crops, boxes, and blocks of pixels."""
