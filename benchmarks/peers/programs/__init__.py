"""The programs, a file each. In this order they are run and shown."""

ORDER = (
    "bert",
    "gpt2",
    "llama",
    "resnet",
    "mobilenet",
    "efficientnet",
    "unet",
    "recurrent",
    "recommender",
    "graph",
    "training",
    "kernels",
    "overhead",
)
