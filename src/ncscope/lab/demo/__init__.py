"""The demo: train a small residual network on digits and measure every layer."""
