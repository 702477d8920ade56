package web_test

import (
	"cmp"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"flightline/shared/testenv"
	"flightline/shared/web"
)

var update = flag.Bool("update", false, "write the generated documents anew")

const errorsFile = "../../docs/errors.md"

// meanings are what each code means to a client, and what the client does then.
var meanings = map[web.Code]struct{ means, then string }{
	web.InvalidRequest:      {"the body or a parameter is wrong; the text names the field and what it may be", "correct it"},
	web.JobFinished:         {"a job that ended otherwise cannot be cancelled", "look at its status"},
	web.NotRetryable:        {"only a FAILED or TIMED_OUT job can be retried", "look at its status"},
	web.Unauthorized:        {"no key, an unknown or revoked one, or one without the permission; the API does not say which", "use another key"},
	web.JobNotFound:         {"no such job: it never existed, or its ttl or retention is over", "submit it again if it is still wanted"},
	web.EndpointNotFound:    {"no such endpoint, or it is being deleted; nothing was queued", "correct the address"},
	web.NotFound:            {"no such thing beneath `/v1`", "correct the address"},
	web.RouteNotFound:       {"no such route, or not in this process; of what was asked for nothing is known", "correct the address"},
	web.MethodNotAllowed:    {"the route exists, but not with this method; `Allow` lists those it has", "use one of them"},
	web.PodNotFound:         {"no such pod: it was never made, or is gone for more than a day", "correct the address"},
	web.PodConflict:         {"the pod is locked, TERMINATED, or its owner runs it; the text says which", "unlock it, or act where it runs"},
	web.InUse:               {"a pod or an endpoint uses the template or network volume; the webhook secret before the present one still signs; the text names it", "delete or change that first, or wait for the end of the overlap"},
	web.RequestTimeout:      {"the request was sent too slowly, or not to its end; the connection ends", "send it again on a new connection"},
	web.BodyTooLarge:        {"the body is over the limit that the text names", "send less"},
	web.EndpointExists:      {"the id is taken, or differs only in case from that of another endpoint", "take another, or change the one there is"},
	web.EndpointBusy:        {"the endpoint still has jobs; or it cannot be created, because the queue of its id has jobs of an earlier endpoint whose record is lost", "wait for them, or cancel them with `?force=true`; a backup has the lost record"},
	web.IdempotencyMismatch: {"the `Idempotency-Key` was used within 24 hours for another operation or body", "use a new key for each request"},
	web.TooManyRequests:     {"a rate limit is reached, the endpoint's queue has no room for the job (`maxQueueBytes`, `maxQueueJobs`), a quota of the key is used up, or the client's address sent too many unknown keys; the text says which, and the bound. The job was not accepted", "wait for `Retry-After`, then longer each time"},
	web.Internal:            {"our fault; `requestId` finds the log line", "report it"},
	web.Unavailable:         {"JetStream is away, the server is stopping, the storage is nearly full, or too many submissions, large bodies or connections are under way. A 503 without `X-Job-Id` submitted nothing, nor did a 503 with `too many submissions` or `nearly full` in its text. In the other cases it is not known whether a submission was accepted: `/status` answers for the `X-Job-Id`", "wait for `Retry-After`, then try again"},
}

// The document is the table of this package; -update rewrites it.
func TestGeneratedErrors(t *testing.T) {
	got := errorsDocument(t)
	testenv.Golden(t, *update, errorsFile, got)
}

func errorsDocument(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(`# Errors

<!-- Generated from shared/web by TestGeneratedErrors; ` + "`task gen`" + ` rewrites it. -->

Every answer that is no success is a JSON object, whatever went wrong:

` + "```json" + `
{"error":"policy.ttl must be between 10000 and 604800000 milliseconds","code":"invalid_request","requestId":"…"}
` + "```" + `

` + "`error`" + ` is for people and may change. ` + "`code`" + ` is for programs: this list is closed, further codes come with a new version of the API only.
` + "`requestId`" + ` repeats the header ` + "`X-Request-Id`" + `; the 503 of a [connection over the bound](operating.md#connections) has neither. Beneath ` + "`/v1`" + ` a ` + "`message`" + ` repeats the text and ` + "`status`" + ` the HTTP status; beneath
` + "`/v2`" + ` a ` + "`status`" + ` is always a job's, as clients read it. A job that fails is no error of the API: its status is FAILED, and the answer 200.

| code | status | what it means | what to do |
|---|---|---|---|
`)
	codes := web.Codes()
	order := make([]web.Code, 0, len(codes))
	for code := range codes {
		order = append(order, code)
	}
	slices.SortFunc(order, func(x, y web.Code) int {
		return cmp.Or(cmp.Compare(codes[x], codes[y]), cmp.Compare(x, y))
	})
	for _, code := range order {
		m, ok := meanings[code]
		if !ok {
			t.Errorf("nothing is said about the code %s", code)
		}
		fmt.Fprintf(&b, "| `%s` | %d %s | %s | %s |\n", code, codes[code], http.StatusText(codes[code]), m.means, m.then)
	}
	if len(meanings) != len(codes) {
		t.Errorf("got %d codes, but %d meanings", len(codes), len(meanings))
	}
	return b.String()
}
