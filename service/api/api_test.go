package api_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc"

	"github.com/mooringdb/mooring/service/api"
)

// registrar lists what is registered on it.
type registrar []string

func (r *registrar) RegisterService(desc *grpc.ServiceDesc, _ any) {
	*r = append(*r, desc.ServiceName)
}

// TestNames checks that Names names the services that are registered.
func TestNames(t *testing.T) {
	var got registrar
	api.New(api.Config{}).Register(&got)
	if want := api.Names(); !slices.Equal(got, want) {
		t.Errorf("%q are registered, and Names() = %q", got, want)
	}
}
