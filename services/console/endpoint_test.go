package console

import (
	"bytes"
	"context"
	"html"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"flightline/shared/registry"
)

// fieldsOf are the fields of a page's forms, as a browser without JavaScript sends them.
func fieldsOf(page string) url.Values {
	fields := url.Values{}
	for _, field := range regexp.MustCompile(`<input[^>]* name="([^"]*)" value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		fields.Add(field[1], html.UnescapeString(field[2]))
	}
	return fields
}

// renderedBy is the page that a template makes of what it shows.
func renderedBy(t *testing.T, template string, v *visit, shown any) string {
	t.Helper()
	s, err := New(Config{}, Deps{Sessions: &registry.Sessions{}, Actions: &registry.Actions{}, Connect: func(string) (API, error) { return API{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := s.pages.ExecuteTemplate(&page, template, &view{V: v, D: shown}); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

// The form of the settings sends what its user changed, and leaves what others changed since it
// was shown.
func TestTheSettingsFormKeepsWhatOthersChanged(t *testing.T) {
	t.Parallel()
	const shown = `{"id":"ep","name":"old","workersMin":0,"workersMax":3,"executionTimeoutMs":600000,"ttlMs":86400000,"leaseMs":30000,"retentionMs":1800000}`
	for name, tc := range map[string]struct {
		stored string // in place of "workersMax":3
		change url.Values
		want   string // what is sent, "" for nothing
	}{
		"changed by others":              {`"workersMax":10`, url.Values{"name": {"new"}}, `{"name":"new"}`},
		"the same field as others":       {`"workersMax":10`, url.Values{"workersMax": {"5"}}, `{"workersMax":5}`},
		"to what it is by now":           {`"workersMax":10`, url.Values{"workersMax": {"10"}}, ""},
		"no name":                        {`"workersMax":3`, url.Values{"name": {""}}, `{"name":""}`},
		"nothing":                        {`"workersMax":10`, nil, ""},
		"two fields, nothing by another": {`"workersMax":3`, url.Values{"name": {"new"}, "ttl": {"1h"}}, `{"name":"new","ttlMs":3600000}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stored, sent := shown, ""
			v := &visit{ctx: t.Context(), params: map[string]string{"endpoint": "ep"}}
			v.control = apiOf(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPatch {
					body, _ := io.ReadAll(r.Body)
					sent = string(body)
				}
				_, _ = io.WriteString(w, stored)
			})
			data, err := loadSettings(v)
			if err != nil {
				t.Fatal(err)
			}
			v.form = fieldsOf(renderedBy(t, "settings", v, data))
			maps.Copy(v.form, tc.change)
			stored = strings.Replace(shown, `"workersMax":3`, tc.stored, 1)
			if _, err := changeSettings(v); err != nil || sent != tc.want {
				t.Errorf("sent %q, %v, want %q", sent, err, tc.want)
			}
		})
	}
}

// A zero that the API would not be sent is refused, and an empty rollout is the default one.
func TestASettingOfZeroIsNoChange(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		form      url.Values
		err, sent string
	}{
		{url.Values{"ttl": {"0s"}}, `ttl must not be "0s"`, ""},
		{url.Values{"name": {"new"}, "maxQueueJobs": {"0"}}, `maxQueueJobs must not be "0"`, ""},
		{url.Values{"workersMax": {"0"}}, "", `{"workersMax":0}`},
		{url.Values{"rollout": {""}}, "", `{"rollout":"replace"}`},
	} {
		sent := ""
		v := &visit{ctx: t.Context(), params: map[string]string{"endpoint": "ep"}, form: tc.form}
		v.control = apiOf(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPatch {
				body, _ := io.ReadAll(r.Body)
				sent = string(body)
			}
			_, _ = io.WriteString(w, `{"id":"ep","name":"old","workersMax":3,"ttlMs":86400000,"maxQueueJobs":1000,"rollout":"canary:10%"}`)
		})
		_, err := changeSettings(v)
		if sent != tc.sent || (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err {
			t.Errorf("%v: got %v, sent %q, want %q, sent %q", tc.form, err, sent, tc.err, tc.sent)
		}
	}
}

// A pause is as long as its form says, or refused.
func TestThePauseOfAForm(t *testing.T) {
	t.Parallel()
	for minutes, want := range map[string]string{
		"0": `{}`, "15": `{"durationMs":900000}`, "525600": `{"durationMs":31536000000}`,
		"525601": "", "-1": "", "": "", "1.5": "", "153722867280912931": "", "307445734561825861": "",
	} {
		sent := ""
		v := &visit{ctx: t.Context(), params: map[string]string{"endpoint": "ep"}, form: url.Values{"minutes": {minutes}}}
		v.control = apiOf(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			sent = string(body)
			_, _ = io.WriteString(w, `{"id":"ep"}`)
		})
		_, err := pauseEndpoint(v)
		if status, text := problem(err); sent != want || want == "" && (status != http.StatusBadRequest || !strings.Contains(text, "between 0 and 525600")) {
			t.Errorf("%q minutes: got %v, sent %q, want %q", minutes, err, sent, want)
		}
	}
}

// The API purges on when the console stops waiting.
func TestAPurgeThatLastsIsNoError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), actTimeout)
		defer cancel()
		lasts := inMemory(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		v := &visit{ctx: ctx, api: lasts.client(t), params: map[string]string{"endpoint": "ep"}}
		next, err := purgeEndpoint(v)
		if err != nil || next != pathOf("ep") || !strings.Contains(v.noticed, "has not ended within 30s") {
			t.Errorf("got %s, %v, notice %q", next, err, v.noticed)
		}
	})
}
