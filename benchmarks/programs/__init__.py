"""The programs, a file each."""

# Those that every framework runs, in the order in which they are shown.
ORDER = (
    "bert gpt2 llama resnet mobilenet efficientnet unet recurrent recommender graph training kernels overhead"
).split()
