"""One HTML file per run and one per session, with all it needs inside: no request leaves the page.

    html        templates, escaping, the policy that forbids everything but the page's own script
    run         the page of a run: ``write_run_page``
    session     the page of a session: ``write_session_page``
    *.html, page.css, *.js      what they are made of
"""
