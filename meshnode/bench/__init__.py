"""What `meshnode bench` measures: this machine's ceilings, this node's own figures, and the ratios between them.

One module is one scenario; `plan` says how much each may do, `figures` what comes out, `running` runs them in order.
"""
