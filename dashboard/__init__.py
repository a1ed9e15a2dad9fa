"""The dashboard: a web page over a profile directory, for engineers who would rather look than read.

    from dashboard.app import create_app          # a Dash application; `mgpu dashboard DIR` serves it
    from dashboard import figures                 # the charts alone, for a notebook: figures.categories(report)

Data flows one way: `store` loads launches through the profiler, `timeline` and `figures` turn traces and reports into
what is drawn, `views` lay pages out, `app` puts a server around them. The state of a view is its URL (`state`).

A page says in `views/registry` which parts of the report it needs. `work` finds them in the background, `render` shows
how far that is until they are there; so a page never asks a report for what it has not named.
"""
