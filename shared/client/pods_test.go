package client_test

import (
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"flightline/shared/client"
)

func TestPodsTemplatesAndVolumesAskAsTheAPIWants(t *testing.T) {
	const pod = `{"id":"p1","name":"n","desiredStatus":"EXITED","endpointId":null,"templateId":"t1","costPerHr":0.5,"more":[1]}`
	locked := false
	for name, tc := range map[string]struct {
		answer string
		call   func(c *client.Client) (any, error)
		want   request
		got    string
	}{
		"create": {
			pod,
			func(c *client.Client) (any, error) {
				return c.Pods().Create(t.Context(), client.PodSpec{Spec: client.Spec{Image: new("i"), Command: []string{"a"}}, VCPUs: new(1.5), GPUs: new(0), Locked: &locked})
			},
			request{Method: "POST", URI: "/v1/pods", Body: `{"imageName":"i","dockerStartCmd":["a"],"gpuCount":0,"vcpuCount":1.5,"locked":false}`},
			pod,
		},
		"get": {
			pod,
			func(c *client.Client) (any, error) {
				return c.Pods().Get(t.Context(), "p1", url.Values{"includeMachine": {"true"}})
			},
			request{Method: "GET", URI: "/v1/pods/p1?includeMachine=true"},
			pod,
		},
		"list": {
			"[" + pod + "]",
			func(c *client.Client) (any, error) {
				return c.Pods().List(t.Context(), url.Values{"name": {"a b"}})
			},
			request{Method: "GET", URI: "/v1/pods?name=a+b"},
			"[" + pod + "]",
		},
		"update": {
			pod,
			func(c *client.Client) (any, error) {
				return c.Pods().Update(t.Context(), "p1", client.PodSpec{Spec: client.Spec{Env: map[string]string{}}})
			},
			request{Method: "PATCH", URI: "/v1/pods/p1", Body: `{"env":{}}`},
			pod,
		},
		"restart": {pod, func(c *client.Client) (any, error) { return c.Pods().Restart(t.Context(), "p1") }, request{Method: "POST", URI: "/v1/pods/p1/restart"}, pod},
		"start":   {pod, func(c *client.Client) (any, error) { return c.Pods().Start(t.Context(), "p1") }, request{Method: "POST", URI: "/v1/pods/p1/start"}, pod},
		"stop":    {pod, func(c *client.Client) (any, error) { return c.Pods().Stop(t.Context(), "p1") }, request{Method: "POST", URI: "/v1/pods/p1/stop"}, pod},
		"delete":  {"", func(c *client.Client) (any, error) { return nil, c.Pods().Delete(t.Context(), "p1") }, request{Method: "DELETE", URI: "/v1/pods/p1"}, "null"},
		"make a template": {
			`{"id":"t1","earned":0}`,
			func(c *client.Client) (any, error) {
				return c.Templates().Create(t.Context(), client.TemplateSpec{Spec: client.Spec{Name: "n"}, Category: new("CPU")})
			},
			request{Method: "POST", URI: "/v1/templates", Body: `{"name":"n","category":"CPU"}`},
			`{"id":"t1","earned":0}`,
		},
		"a volume": {
			`{"id":"v1","name":"n","size":2,"dataCenterId":"d"}`,
			func(c *client.Client) (any, error) {
				return c.Volumes().Update(t.Context(), "v1", client.VolumeSpec{Size: 2})
			},
			request{Method: "PATCH", URI: "/v1/networkvolumes/v1", Body: `{"size":2}`},
			`{"id":"v1","name":"n","size":2,"dataCenterId":"d"}`,
		},
		"volumes": {
			`[]`, func(c *client.Client) (any, error) { return c.Volumes().List(t.Context()) },
			request{Method: "GET", URI: "/v1/networkvolumes"},
			`[]`,
		},
		"a template": {
			`{"id":"t1"}`, func(c *client.Client) (any, error) { return c.Templates().Get(t.Context(), "t1") },
			request{Method: "GET", URI: "/v1/templates/t1"},
			`{"id":"t1"}`,
		},
		"no volume": {
			"", func(c *client.Client) (any, error) { return nil, c.Volumes().Delete(t.Context(), "v1") },
			request{Method: "DELETE", URI: "/v1/networkvolumes/v1"},
			"null",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, ok(tc.answer))
			got, err := tc.call(s.Client)
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Auth = "Bearer secret"
			if tc.want.Body != "" {
				tc.want.ContentType = "application/json"
			}
			if diff := cmp.Diff([]request{tc.want}, s.requests()); diff != "" || compact(t, got) != tc.got {
				t.Errorf("got %s, want %s; -want +got:\n%s", compact(t, got), tc.got, diff)
			}
		})
	}
}
