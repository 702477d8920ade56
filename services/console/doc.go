// Package console is the web console, beneath /ui: pages for people who look for a job,
// find what is wrong with it and mend it. It has no access of its own: it asks the API
// through package client, with the key that its reader signed in with.
//
// Reading order: console.go (Service), session.go (sign-in, cookies; the key is sealed in
// shared/registry/sessions.go), security.go (what each request must show and each answer
// carries), screens.go (the table of screens and actions), visit.go (one request), live.go
// (what changes while a page is open).
//
// # A screen
//
// A screen is one Go file and one template of the same name, and a line in screens():
//
//	{path: "/e/:endpoint/jobs", title: "Jobs", nav: "endpoint", template: "jobs", fragments: []string{"jobs-table"}, load: loadJobs},
//
// load reads what the page shows from v.api (/v2, and of /v1 overview, failures and jobs)
// and v.control (the rest of /v1), both of package client, and returns it. v.param and
// v.query have the path's and the query's parameters; v.may asks the key's scopes; v.follow
// names endpoints whose events have the page computed again at once. An error becomes a
// page with its text and status.
//
// The template defines the page by that name. The dot is a *view: .D is what load returned,
// .V the visit. What may change while the page is open is a template of its own, listed in
// fragments, that makes one element whose id is the template's name:
//
//	{{define "jobs-table"}}<section id="jobs-table">…</section>{{end}}
//	{{define "jobs"}}<h1>…</h1>{{template "jobs-table" .}}{{end}}
//
// An open page keeps one EventSource to /ui/live?topics=PATH (the page's own, with its
// query). The service loads the screen again while somebody watches it, once for all watchers
// with the same key: when an event of a followed endpoint comes, and without one after 50
// times as long as a load takes (0.7 to 10 s). It sends the fragments that changed;
// static/app.js merges them into the page, which keeps focus, selection and open details. So
// a fragment may not depend on the session or on the present time: {{when .At}} makes a time
// that the browser shows relatively.
//
// What a page does when its connection breaks is in static/app.js: the browser connects again by
// itself, the page after 25 s without a word, and 3 s after it was refused. A page that is not
// visible has no connection.
//
// # An action
//
// An action is a line in actions(): a path that takes POST, and a function that does it and
// returns where the browser goes then. Its form has {{csrf .V}} in it. v.form has the
// fields. What a key may not do is refused by the API; the template leaves its button away:
//
//	{{if .V.May "submit" .D.Endpoint}}<form method="post" action="/ui/e/{{.D.Endpoint}}/jobs/{{.D.ID}}/cancel">{{csrf .V}}<button>Cancel</button></form>{{end}}
//
// v.notice leaves a sentence for the next page. A question before an action is a screen
// with that form, so that it works without JavaScript.
//
// # Bounds
//
// The policy of the pages (security.go) allows neither inline scripts nor inline styles, nor
// requests to other hosts: sizes that depend on data are attributes of SVG, or <progress>.
// static has at most 60 KB of JavaScript and 30 KB of CSS (static_test.go).
package console
