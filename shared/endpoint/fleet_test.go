package endpoint_test

import (
	"errors"
	"strings"
	"testing"

	"flightline/shared/endpoint"
)

func TestAFleetThatCannotBeStartedNamesTheField(t *testing.T) {
	long := strings.Repeat("x", endpoint.MaxCommandBytes)
	for name, tt := range map[string]struct {
		fleet endpoint.Fleet
		field string // "" for none
	}{
		"nothing":                    {endpoint.Fleet{}, ""},
		"a process":                  {endpoint.Fleet{Driver: "process", Command: []string{"python3", ""}}, ""},
		"of a template":              {endpoint.Fleet{Driver: "process", TemplateID: "t"}, ""},
		"a process of nothing":       {endpoint.Fleet{Driver: "process"}, "command"},
		"a container of nothing":     {endpoint.Fleet{Driver: "docker"}, "imageName"},
		"another driver":             {endpoint.Fleet{Driver: "vm"}, "driver"},
		"too many words":             {endpoint.Fleet{Command: make([]string, endpoint.MaxCommand+1)}, "command"},
		"words that are too long":    {endpoint.Fleet{Command: []string{"a", long}}, "command"},
		"a word with NUL":            {endpoint.Fleet{Command: []string{"a", "b\x00"}}, "command"},
		"no program":                 {endpoint.Fleet{Command: []string{"", "b"}}, "command"},
		"an image that is too long":  {endpoint.Fleet{Image: strings.Repeat("x", endpoint.MaxImage+1)}, "imageName"},
		"an image with a line break": {endpoint.Fleet{Image: "a\nb"}, "imageName"},
	} {
		_, err := endpoint.Endpoint{ID: "ep", Fleet: tt.fleet}.Complete()
		wrong, bad := errors.AsType[*endpoint.FieldError](err)
		if bad != (tt.field != "") || bad && wrong.Field != tt.field {
			t.Errorf("%s: got %v, want an error of %q", name, err, tt.field)
		}
	}
}
