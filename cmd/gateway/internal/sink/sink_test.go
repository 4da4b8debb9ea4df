package sink_test

import (
	"reflect"
	"testing"

	"github.com/mooringdb/mooring/cmd/gateway/internal/sink"
	"github.com/mooringdb/mooring/core/event"
)

// TestJoinEveryField fails for a field of event.Sink that Join forgets.
func TestJoinEveryField(t *testing.T) {
	calls := map[string]int{}
	listener := func() *event.Sink {
		s := &event.Sink{}
		v := reflect.ValueOf(s).Elem()
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func([]reflect.Value) []reflect.Value {
				calls[name]++
				return nil
			}))
		}
		return s
	}
	joined := reflect.ValueOf(sink.Join(listener(), nil, &event.Sink{}, listener())).Elem()
	for i := range joined.NumField() {
		field := joined.Type().Field(i)
		if joined.Field(i).IsNil() {
			t.Errorf("Join drops %s", field.Name)
			continue
		}
		joined.Field(i).Call([]reflect.Value{reflect.Zero(field.Type.In(0))})
		if calls[field.Name] != 2 {
			t.Errorf("%s reached %d listeners, want 2", field.Name, calls[field.Name])
		}
	}
}

func TestJoinLeavesUnwantedNil(t *testing.T) {
	s := sink.Join(&event.Sink{PoolReady: func(event.PoolReady) {}}, nil)
	if s.CommandStarted != nil || s.PoolReady == nil {
		t.Errorf("Join = %+v, want PoolReady only", s)
	}
}
