package client_test

import (
	"reflect"
	"strings"
	"testing"

	"flightline/shared/api"
	"flightline/shared/client"
)

// Types with names or times of their own have no field that the API does not have.
func TestFieldsAreThoseOfTheAPI(t *testing.T) {
	for _, pair := range []struct{ client, api any }{
		{client.Explanation{}, api.Explanation{}},
		{client.ScalingDecision{}, api.ScalingDecision{}},
		{client.Pod{}, api.Pod{}},
		{client.PodSpec{}, api.PodSpec{}},
		{client.Template{}, api.Template{}},
		{client.TemplateSpec{}, api.TemplateSpec{}},
		{client.VolumeSpec{}, api.VolumeSpec{}},
	} {
		known := jsonNames(pair.api)
		for name := range jsonNames(pair.client) {
			if !known[name] {
				t.Errorf("%T has the field %q, want it in %T", pair.client, name, pair.api)
			}
		}
	}
}

func jsonNames(v any) map[string]bool {
	names := map[string]bool{}
	for _, field := range reflect.VisibleFields(reflect.TypeOf(v)) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names[name] = true
		}
	}
	return names
}
