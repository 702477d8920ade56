package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"flightline/shared/api"
)

// Pods manages pods. Reads need a key with the permission pods or control,
// all else one with control.
type Pods struct{ c *Client }

// Pods returns the calls that manage pods.
func (c *Client) Pods() Pods { return Pods{c} }

// Pod is a container or process that runs a worker, or something else. A zero
// value of an optional field means that it is not known.
type Pod struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Image string `json:"image"`
	// Status is "RUNNING", "EXITED" or "TERMINATED", what the pod should be;
	// StatusChange says what happened last, and when.
	Status       string `json:"desiredStatus"`
	StatusChange string `json:"lastStatusChange"`
	// Endpoint is the id of the endpoint whose worker it is, "" for none.
	Endpoint string `json:"endpointId"`
	// Driver is "process" or "docker", "" if its owner runs it.
	Driver    string    `json:"driver"`
	MachineID string    `json:"machineId"`
	Template  string    `json:"templateId"`
	Locked    bool      `json:"locked"`
	VCPUs     float64   `json:"vcpuCount"`
	MemoryGB  float64   `json:"memoryInGb"`
	CostPerHr *float64  `json:"costPerHr"`
	Created   time.Time `json:"createdAt"`
	Started   time.Time `json:"lastStartedAt"`
	// Startup is how its last start went, nil before, and of a pod that its owner runs.
	Startup *Startup `json:"startup"`
	// Sleep is nil while its worker is awake.
	Sleep *Sleep `json:"sleep"`
	// Raw is the answer itself, for what this type does not name.
	Raw json.RawMessage `json:"-"`
}

// UnmarshalJSON reads the API's pod.
func (p *Pod) UnmarshalJSON(data []byte) error {
	type plain Pod
	return unmarshalWithRaw(data, (*plain)(p), &p.Raw)
}

// MarshalJSON returns the answer as it came.
func (p Pod) MarshalJSON() ([]byte, error) { return rawOr(p.Raw) }

// Spec is what pods and templates are made from, or changed to. Zero values
// mean the default when creating, and no change when updating; an empty list or
// map that is not nil, or a pointer to a zero, takes away what there was.
type Spec struct {
	// Name has at most 191 characters.
	Name       string   `json:"name,omitempty"`
	Image      *string  `json:"imageName,omitempty"`
	Entrypoint []string `json:"dockerEntrypoint,omitzero"`
	Command    []string `json:"dockerStartCmd,omitzero"`
	// Env replaces all variables; the value "***" keeps the one that there is.
	Env map[string]string `json:"env,omitzero"`
	// Ports are "<port>/http" or "<port>/tcp".
	Ports      []string `json:"ports,omitzero"`
	DiskGB     *int     `json:"containerDiskInGb,omitempty"`
	VolumeGB   *int     `json:"volumeInGb,omitempty"`
	VolumePath *string  `json:"volumeMountPath,omitempty"`
	// Capabilities are those of Linux that a container keeps, like "CHOWN"; the
	// operator of the machine says which may be asked for.
	Capabilities []string `json:"capabilities,omitzero"`
	// ModelCache are the models, like "Qwen/Qwen3-8B", for which the pod uses the cache of
	// its machine: at most 20.
	ModelCache []string `json:"modelCache,omitzero"`
}

// PodSpec is a pod to make or change.
type PodSpec struct {
	Spec
	// Driver is "docker", also if it is "", or "process". It, Template and Volume
	// cannot change.
	Driver   string `json:"driver,omitempty"`
	Template string `json:"templateId,omitempty"`
	Volume   string `json:"networkVolumeId,omitempty"`
	// GPUs, VCPUs and MemoryGB are the limits, 0 for none; nil leaves them as they
	// are.
	GPUs     *int     `json:"gpuCount,omitempty"`
	VCPUs    *float64 `json:"vcpuCount,omitempty"`
	MemoryGB *float64 `json:"memoryInGb,omitempty"`
	Locked   *bool    `json:"locked,omitempty"`
}

// Create makes a pod, which a driver starts.
func (p Pods) Create(ctx context.Context, spec PodSpec) (*Pod, error) {
	return one[Pod](ctx, p.c, post(v1("pods"), spec))
}

// Get returns the pod. Query holds include parameters of the API; nil is none.
func (p Pods) Get(ctx context.Context, id string, query url.Values) (*Pod, error) {
	return one[Pod](ctx, p.c, get(v1("pods", id), query))
}

// List returns the pods that query, the API's parameters, keeps; nil keeps all
// but workers and those that are TERMINATED. It reads all pages.
func (p Pods) List(ctx context.Context, query url.Values) ([]Pod, error) {
	return allPages[Pod](ctx, p.c, v1("pods"), query)
}

// Update changes what spec names, as of the pod's next start.
func (p Pods) Update(ctx context.Context, id string, spec PodSpec) (*Pod, error) {
	return one[Pod](ctx, p.c, patch(v1("pods", id), spec))
}

// Start says that the pod should run.
func (p Pods) Start(ctx context.Context, id string) (*Pod, error) {
	return one[Pod](ctx, p.c, post(v1("pods", id, "start"), nil))
}

// Stop says that the pod should not run.
func (p Pods) Stop(ctx context.Context, id string) (*Pod, error) {
	return one[Pod](ctx, p.c, post(v1("pods", id, "stop"), nil))
}

// Restart ends what runs of the pod, and lets it run again.
func (p Pods) Restart(ctx context.Context, id string) (*Pod, error) {
	return one[Pod](ctx, p.c, post(v1("pods", id, "restart"), nil))
}

// Delete ends the pod for good.
func (p Pods) Delete(ctx context.Context, id string) error {
	return p.c.do(ctx, remove(v1("pods", id)), nil)
}

// Templates manages what pods and endpoints can be made from. The permissions
// are those of Pods.
type Templates struct{ things[Template, TemplateSpec] }

// Templates returns the calls that manage templates.
func (c *Client) Templates() Templates {
	return Templates{things[Template, TemplateSpec]{c, "templates"}}
}

// Template is what pods and endpoints can be made from.
type Template struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Image      string `json:"imageName"`
	Serverless bool   `json:"isServerless"`
	// ModelCache are the models for which its pods use the cache of their machine.
	ModelCache []string `json:"modelCache"`
	// Raw is the answer itself, for what this type does not name.
	Raw json.RawMessage `json:"-"`
}

// UnmarshalJSON reads the API's template.
func (t *Template) UnmarshalJSON(data []byte) error {
	type plain Template
	return unmarshalWithRaw(data, (*plain)(t), &t.Raw)
}

// MarshalJSON returns the answer as it came.
func (t Template) MarshalJSON() ([]byte, error) { return rawOr(t.Raw) }

// TemplateSpec is a template to make or change.
type TemplateSpec struct {
	Spec
	Serverless *bool   `json:"isServerless,omitempty"`
	Readme     *string `json:"readme,omitempty"`
	// Category is "NVIDIA", "AMD" or "CPU"; "" is none.
	Category *string `json:"category,omitempty"`
}

// things are the calls that templates and volumes have in common.
type things[T, S any] struct {
	c    *Client
	path string
}

// Create makes one.
func (t things[T, S]) Create(ctx context.Context, spec S) (*T, error) {
	return one[T](ctx, t.c, post(v1(t.path), spec))
}

// Get returns one.
func (t things[T, S]) Get(ctx context.Context, id string) (*T, error) {
	return one[T](ctx, t.c, get(v1(t.path, id), nil))
}

// List returns all, of all pages.
func (t things[T, S]) List(ctx context.Context) ([]T, error) {
	return allPages[T](ctx, t.c, v1(t.path), nil)
}

// Update changes what spec names.
func (t things[T, S]) Update(ctx context.Context, id string, spec S) (*T, error) {
	return one[T](ctx, t.c, patch(v1(t.path, id), spec))
}

// Delete removes what nothing uses.
func (t things[T, S]) Delete(ctx context.Context, id string) error {
	return t.c.do(ctx, remove(v1(t.path, id)), nil)
}

// Volumes manages network volumes. The permissions are those of Pods.
type Volumes struct{ things[Volume, VolumeSpec] }

// Volumes returns the calls that manage network volumes.
func (c *Client) Volumes() Volumes { return Volumes{things[Volume, VolumeSpec]{c, "networkvolumes"}} }

// Volume is storage that outlives pods.
type Volume = api.Volume

// VolumeSpec is a network volume to make or change; zero values change nothing.
type VolumeSpec struct {
	Name string `json:"name,omitempty"`
	// Size is in GB, and never becomes less.
	Size       int    `json:"size,omitempty"`
	DataCenter string `json:"dataCenterId,omitempty"`
	Path       string `json:"path,omitempty"`
}

var nextLink = regexp.MustCompile(`<([^>]*)>; *rel="?next"?`)

// allPages reads a list to its end: the header Link has the next page, as
// a reference to the same path with other parameters.
func allPages[T any](ctx context.Context, c *Client, path string, query url.Values) ([]T, error) {
	list := []T{}
	for {
		var next string
		var part []T
		err := c.do(ctx, call{method: http.MethodGet, path: path, query: query, heard: func(h http.Header) {
			next = ""
			if found := nextLink.FindStringSubmatch(h.Get("Link")); found != nil {
				next = found[1]
			}
		}}, &part)
		if err != nil {
			return nil, err
		}
		list = append(list, part...)
		if next == "" || len(part) == 0 {
			return list, nil
		}
		at, err := url.Parse(next)
		if err != nil {
			return nil, fmt.Errorf("client: the address of the next page: %w", err)
		}
		query = at.Query()
	}
}
