package docs

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"flightline/shared/openapi"
	"flightline/shared/web"
)

var (
	afterColon = regexp.MustCompile(`:([a-z]+)`)
	inBraces   = regexp.MustCompile(`\{([a-z]+)\}`)
)

func described(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openapi.JSON())
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// Each route is in openapi.json, and each operation there is a route.
func TestOpenAPIHasTheRoutesThatThereAre(t *testing.T) {
	s := start(t)
	var want, got []string
	for _, r := range s.app.GetRoutes(true) {
		if r.Method != http.MethodHead { // Fiber's twin of each GET
			want = append(want, r.Method+" "+strings.Replace(afterColon.ReplaceAllString(r.Path, "{$1}"), "/+", "/{path}", 1))
		}
	}
	for path, item := range described(t).Paths.Map() {
		for method := range item.Operations() {
			got = append(got, method+" "+path)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("openapi.json is not what is served (-routes +openapi.json):\n%s", diff)
	}
}

// Its error codes are those of package web, each with its status.
func TestOpenAPIHasTheErrorCodesThatThereAre(t *testing.T) {
	doc := described(t)
	listed := map[web.Code]bool{}
	for _, code := range doc.Components.Schemas["Error"].Value.Properties["code"].Value.Enum {
		text, _ := code.(string)
		listed[web.Code(text)] = true
	}
	want := web.Codes()
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(listed))); diff != "" {
		t.Errorf("the list (-web +openapi.json):\n%s", diff)
	}
	got := map[web.Code]int{}
	for name, response := range doc.Components.Responses {
		if strings.HasPrefix(name, "OpenAI") {
			continue // their shape is OpenAI's
		}
		all := response.Value.Content["application/json"].Schema.Value.AllOf
		if len(all) != 2 {
			t.Fatalf("%s: got %d parts, want the error and what its code may be", name, len(all))
		}
		detail := all[1].Value.Properties
		status, _ := detail["status"].Value.Enum[0].(float64)
		for _, code := range detail["code"].Value.Enum {
			text, _ := code.(string)
			got[web.Code(text)] = int(status)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the answers (-web +openapi.json):\n%s", diff)
	}
}

// An operation's error answers are under their own status, and an
// operation with a key has 401.
func TestOpenAPIAnswersAreUnderTheirStatus(t *testing.T) {
	s := start(t)
	for path, item := range described(t).Paths.Map() {
		for method, operation := range item.Operations() {
			name := method + " " + path
			open := needsOf(t, s, method, concrete(inBraces.ReplaceAllString(path, ":$1"))) == ""
			if declared := operation.Security != nil && len(*operation.Security) == 0; declared != open {
				t.Errorf("%s: got open %v in openapi.json, want %v", name, declared, open)
			}
			for status, response := range operation.Responses.Map() {
				if status >= "400" && !strings.Contains(response.Ref, "/OpenAI") && path != "/readyz" { // it is no error there
					checkStatus(t, name, status, response)
				}
			}
			if !open && operation.Responses.Value("401") == nil {
				t.Errorf("%s: needs a key, but no 401 is described", name)
			}
		}
	}
}

func checkStatus(t *testing.T, name, status string, response *openapi3.ResponseRef) {
	t.Helper()
	for _, code := range response.Value.Content["application/json"].Schema.Value.AllOf[1].Value.Properties["code"].Value.Enum {
		text, _ := code.(string)
		if got := web.Codes()[web.Code(text)]; status != strconv.Itoa(got) {
			t.Errorf("%s: %s is under %s, want %d", name, text, status, got)
		}
	}
}
