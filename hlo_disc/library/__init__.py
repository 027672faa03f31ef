"""Programs as shared libraries with a C interface, which run without Python (`hlo-disc compile --emit library`)."""
