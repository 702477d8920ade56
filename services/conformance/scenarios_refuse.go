package conformance

import (
	"fmt"
	"net/http"
	"strings"
)

func keys() []Scenario {
	const section = "Authentication"
	return []Scenario{
		{Name: "key-forms", Section: section, Shows: "`Bearer KEY` and the bare key are both taken", play: keyForms},
		{Name: "key-missing", Section: section, Shows: "without a key each operation is 401", play: func(p *play) { denied(p, "") }},
		{Name: "key-wrong", Section: section, Shows: "with a wrong key each operation is 401", play: func(p *play) { denied(p, "Bearer conform-wrong-key") }},
	}
}

func refusing() []Scenario {
	const errors, limits = "Errors", "Limits"
	return []Scenario{
		{Name: "unknown-endpoint", Section: errors, Shows: "an endpoint that does not exist is 404", play: unknownEndpoint},
		{Name: "unknown-job", Section: errors, Shows: "a job that does not exist is 404", play: unknownJob},
		{Name: "malformed-json", Section: errors, Shows: "a body that is no JSON object is 400", play: malformed},
		{Name: "input-required", Section: errors, Shows: "`input` missing or no object is 400", play: inputRequired},
		{Name: "fields-typed", Section: errors, Shows: "a top-level field of another type than the contract's is 400", play: fieldsTyped},
		{Name: "policy-bounds", Section: limits, Shows: "`executionTimeout` is 5 s to 7 days, `ttl` 10 s to 7 days; beyond is 400", play: policyBounds},
		{Name: "run-size", Section: limits, Shows: "`/run` takes 10 MB; more is 413, or 400", play: func(p *play) { sizes(p, "/run", 10) }},
		{Name: "runsync-size", Section: limits, Shows: "`/runsync` takes 20 MB; more is 413, or 400", play: func(p *play) { sizes(p, "/runsync", 20) }},
	}
}

func keyForms(p *play) {
	for _, form := range []string{"Bearer ", ""} {
		a := p.send(call{method: "GET", path: "/v2/" + p.w.cfg.Endpoint + "/health", header: map[string]string{"Authorization": form + p.w.cfg.Key}})
		p.want(fmt.Sprintf("Authorization: %sKEY", form), a, http.StatusOK)
	}
}

// operation is the call of one, such as "POST /run", with a good body if it has any.
func operation(endpoint, request string) call {
	method, rest, _ := strings.Cut(request, " ")
	c := call{method: method, path: "/v2/" + endpoint + rest}
	if strings.HasPrefix(rest, "/run") {
		c.body = body(task{}, nil)
	}
	return c
}

// denied asks each operation but /purge-queue, which would do harm where it is
// not denied.
func denied(p *play, key string) {
	for _, request := range []string{
		"POST /run", "POST /runsync", "GET /status/x", "GET /stream/x", "POST /cancel/x", "POST /retry/x", "GET /health",
	} {
		c := operation(p.w.cfg.Endpoint, request)
		c.header = map[string]string{"Authorization": key}
		p.want(request, p.send(c), http.StatusUnauthorized)
	}
}

func unknownEndpoint(p *play) {
	for _, request := range []string{"POST /run", "POST /runsync", "GET /status/x", "GET /stream/x", "POST /cancel/x", "POST /retry/x", "POST /purge-queue", "GET /health"} {
		p.want(request+" of an unknown endpoint", p.send(operation("conform-no-such-endpoint", request)), http.StatusNotFound)
	}
}

func unknownJob(p *play) {
	const unknown = "01920c2e-7a4b-7c1d-8e2f-3a4b5c6d7e8f"
	for _, request := range []string{"GET /status/", "GET /stream/", "POST /cancel/", "POST /retry/"} {
		p.want(request+" of an unknown job", p.send(operation(p.w.cfg.Endpoint, request+unknown)), http.StatusNotFound)
	}
}

// wantRefused wants 400 for each of the bodies from both submissions.
func (p *play) wantRefused(bodies ...string) {
	for _, text := range bodies {
		for _, operation := range []string{"/run", "/runsync"} {
			a := p.post(p.w.cfg.Endpoint, operation, text)
			p.want(fmt.Sprintf("%s of %.80q", operation, text), a, http.StatusBadRequest)
		}
	}
}

func malformed(p *play) {
	p.wantRefused(`{"input":`, `{"input":{}`, "no JSON", `[{"input":{}}]`, `"text"`, "null")
}

func inputRequired(p *play) {
	p.wantRefused(`{}`, `{"prompt":"x"}`, `{"input":null}`, `{"input":"text"}`, `{"input":[1]}`, `{"input":3}`)
}

func fieldsTyped(p *play) {
	for _, more := range []string{
		`"webhook":1`, `"webhook":"no address"`, `"policy":"fast"`, `"policy":{"lowPriority":"yes"}`, `"policy":{"ttl":"10s"}`,
		`"policy":{"executionTimeout":5000.5}`, `"s3Config":"bucket"`,
	} {
		p.wantRefused(`{"input":{},` + more + `}`)
	}
}

func policyBounds(p *play) {
	const week = 604_800_000
	for field, low := range map[string]int{"executionTimeout": 5000, "ttl": 10_000} {
		for value, status := range map[int]int{low - 1: 400, low: 200, week: 200, week + 1: 400, 0: 400, -1: 400} {
			a := p.post(p.w.cfg.Endpoint, "/run", body(task{}, map[string]any{"policy": map[string]any{field: value}}))
			p.want(fmt.Sprintf("%s %d", field, value), a, status)
		}
	}
}

// sizes submits what is just within the limit if a MB is 10^6 bytes, and what
// is just over it if one is 2^20.
func sizes(p *play, operation string, megabytes int) {
	a := p.post(p.w.cfg.Endpoint, operation, large(megabytes*1_000_000))
	p.want(fmt.Sprintf("%s of %d MB", operation, megabytes), a, http.StatusOK)
	a = p.post(p.w.cfg.Endpoint, operation, large(megabytes<<20+1))
	p.want(fmt.Sprintf("%s of over %d MB", operation, megabytes), a, http.StatusRequestEntityTooLarge, http.StatusBadRequest)
}
