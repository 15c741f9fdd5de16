"""The dashboard: pages that the node serves to the browser of this machine, drawn here, kept true by a stream each.

How to add to a page, or a page:

1. `pages/NAME.py` says what there is of it, in one `Page`, and `pages/__init__.py` lists it: that list is the
   navigation, the routes and the keys. `templates/pages/NAME.html` extends `shell.html` and fills its block `main`.
2. A part that stays true is a `Fragment(name, wakes, context)` in the page's `fragments`, drawn by
   `templates/fragments/NAME.html`; the page takes it in by `{% call live("NAME") %}{% include "fragments/NAME.html" %}
   {% endcall %}` (`macros.html`). `wakes` says what it is looked at again for (`live.Wake`); it is sent when its HTML
   differs, twice a second at most. Its `context(web, query)` gives the template's names, at the first drawing and at
   each later one: `query` is what the page's address says, so a page number or a filter belongs there and a stream of
   page 3 goes on showing page 3. Read by `web.operations`, paged; `web.looks.status()` is shared by all open pages.
   What does not change while the page is open comes from `Page.context`. A name that the template misspells is an
   error; do not call one as a macro that it imports.
3. An action is a POST of its own in the page's `routes`: `form = await form_of(request)`, one operation, and
   `said(web, request, "what came of it", back=…)`. `macros.html` has `form`, and `confirmed` for what cannot be undone:
   both work without scripts. Errors of the MeshError tree need no care: they are said in the same place.
4. Whatever somebody else may have chosen (names, values, notices) goes through the filter `shown`, one line and cut, or
   `long`, which has all of it behind a click; in `<bdi>`, or by the macro `site`; a sentence of the node through
   `told`, which also makes code of what it has in backquotes. Never `| safe`, no `style=`, no `on…=`, no inline script:
   the policy of `guard.py` would not run them, and the tests fail at its first complaint.
   Give every row, `details` and input an `id` of its own that stays: a morph keeps focus, and what was opened, by it.
   What a stream is to leave alone, as a form that is filled in, gets an `id` and `data-keeps`.
   A list whose items may go by an action bears `data-list` and an id, its items `tabindex="-1"`: focus
   goes on to the next.
   How long ago something was is told anew by `Wake.COARSE`, by `about` of `cases.html`; a style sheet of its own is
   linked in its block `head`.
5. Tables by `table` and `cell` (cards where it is narrow), none by `empty`, times by `when(ms, now_ms)`, states by
   `badge`; colours are tokens of `app.css`, each measured in both schemes. What is not told by colour alone, is told.
6. A test (`tests/support/dashboard.py`): `with Served(MeshInMemory(…)) as served, visiting(browser, served) as (page,
   _)`, or `Served(Node(…))`; `visiting` fails on any complaint of the browser, and on any request to another host.
   `violations(page)` is the audit, `overflows(page)` the width. At 360 and 1,600 pixels, in both schemes, by keys.

`guard.py` decides who is answered, `doors.py` how a browser gets in, `live.py` how pages stay true, `site.py` what a
page is made of, `assets.py` which files it loads. What was taken from others lies in `static/vendor`, with licences:
htmx 2.0.11, its extension for server-sent events 2.2.4 (htmx-ext-sse), and idiomorph 0.8.0, unchanged.
"""
