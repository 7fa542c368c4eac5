"""Access to the head, the layers and the features of any classifier, and models by name.

* What is measured in a model: `heads` finds the head (its rules are listed at the top of the file)
  among the `linear_calls` of a pass, up to a `last_step`; `layers` chooses layers by name;
  `tracing` joins both on the first batch; `parts_observer` does it for a loop that calls
  parts of a model.
* What is read while the model runs: `taps` keeps features, the head's input and logits; `masks`
  tells padding from tokens; `forward` calls a model and finds tensors and logits in its output.
* What must not change or get lost: `evaluation_mode` restores the state of training; `hooks` keep
  errors from the user's pass; `wrappers`, `sharding` and `replicas` know compiled and distributed
  models.
* Where models come from: `libraries`, `weights` of files, and `networks` of the papers.
"""
