package client_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/bson"
	"github.com/mooringdb/mooring/core/client"
	"github.com/mooringdb/mooring/core/conn/metadata"
	"github.com/mooringdb/mooring/core/connstring"
	"github.com/mooringdb/mooring/internal/fakemongo"
)

// The prose tests of MongoDB Handshake, "Client Metadata Update".

var (
	wrapping = metadata.Library{Name: "library", Version: "1.2", Platform: "Library Platform"}
	onTop    = metadata.Library{Name: "framework", Version: "2.0", Platform: "Framework Platform"}
	appended = []metadata.Library{ // the cases of the first two tests
		onTop,
		{Name: "framework", Version: "2.0"},
		{Name: "framework", Platform: "Framework Platform"},
		{Name: "framework"},
	}
)

// greeting is a client of a server, and what it tells the server of itself.
type greeting struct {
	t      *testing.T
	server *fakemongo.Server
	client *client.Client
}

// greet runs a test with a client whose connections are idle after a millisecond.
func greet(t *testing.T, libraries []metadata.Library, test func(g greeting)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := fakemongo.NewServer(t, nil)
		cfg := connstring.Config{AppName: "app", MaxIdleTime: new(time.Millisecond)}
		test(greeting{
			t, server, start(t, server, cfg, client.Options{Libraries: libraries, Version: "v1"}),
		})
	})
}

func (g greeting) append(lib metadata.Library) {
	g.t.Helper()
	if err := g.client.AppendMetadata(lib); err != nil {
		g.t.Fatalf("AppendMetadata(%+v) = %v", lib, err)
	}
}

// document pings on a new connection, and returns the client document of that connection.
func (g greeting) document() bson.Raw {
	g.t.Helper()
	time.Sleep(5 * time.Millisecond) //nolint:forbidigo // in a bubble
	before := g.server.AcceptedConnections()
	if err := g.client.Ping(g.t.Context()); err != nil {
		g.t.Fatalf("Ping() = %v", err)
	}
	var last bson.Raw
	for _, cmd := range g.server.Commands("isMaster") {
		if v, ok := cmd.Body.Lookup("client"); ok && cmd.Connection > before {
			last, _ = v.Document()
		}
	}
	if last == nil {
		g.t.Fatal("the ping made no connection")
	}
	return last
}

// expectAppended wants that got is before with lib in addition.
func (g greeting) expectAppended(before, got bson.Raw, lib metadata.Library) {
	g.t.Helper()
	for field, text := range map[string]string{
		"driver.name": delimited(lib.Name), "driver.version": delimited(lib.Version), "platform": delimited(lib.Platform),
	} {
		if got, want := fieldText(got, field), fieldText(before, field)+text; got != want {
			g.t.Errorf("after %+v: %s = %q, want %q", lib, field, got, want)
		}
	}
	if text(g.t, bson.Without(got, "driver", "platform")) != text(g.t,
		bson.Without(before, "driver", "platform")) {
		g.t.Errorf("after %+v: other fields than driver and platform changed: %s", lib,
			text(g.t, got))
	}
}

// expectSame wants that the client document is still before.
func (g greeting) expectSame(before bson.Raw) {
	g.t.Helper()
	if got := g.document(); text(g.t, got) != text(g.t, before) {
		g.t.Errorf("client = %s, want %s as before", text(g.t, got), text(g.t, before))
	}
}

func delimited(s string) string {
	if s == "" {
		return ""
	}
	return "|" + s
}

func fieldText(d bson.Raw, path string) string {
	v, _ := d.Lookup(strings.Split(path, ".")...)
	s, _ := v.Str()
	return s
}

func TestMetadataUpdateProse1TheDriverUpdatesMetadata(t *testing.T) {
	for _, lib := range appended {
		greet(t, []metadata.Library{wrapping}, func(g greeting) {
			initial := g.document()
			if got := fieldText(initial, "driver.name"); got != "mooring|library" {
				t.Errorf("driver.name = %q", got)
			}
			g.append(lib)
			g.expectAppended(initial, g.document(), lib)
		})
	}
}

func TestMetadataUpdateProse2MultipleSuccessiveUpdates(t *testing.T) {
	for _, lib := range appended {
		greet(t, nil, func(g greeting) {
			g.append(wrapping)
			updated := g.document()
			g.append(lib)
			g.expectAppended(updated, g.document(), lib)
		})
	}
}

func TestMetadataUpdateProse3IdenticalAndPartiallyIdentical(t *testing.T) {
	for name := range strings.FieldsSeq("library framework") {
		for version := range strings.FieldsSeq("1.2 2.0") {
			for _, platform := range []string{wrapping.Platform, onTop.Platform} {
				lib := metadata.Library{Name: name, Version: version, Platform: platform}
				greet(t, nil, func(g greeting) {
					g.append(wrapping)
					updated := g.document()
					g.append(lib)
					if lib == wrapping {
						g.expectSame(updated)
					} else {
						g.expectAppended(updated, g.document(), lib)
					}
				})
			}
		}
	}
}

func TestMetadataUpdateProse4DuplicateAfterAnotherUpdate(t *testing.T) {
	greet(t, nil, func(g greeting) {
		g.append(wrapping)
		first := g.document()
		g.append(onTop)
		second := g.document()
		g.expectAppended(first, second, onTop)
		g.append(wrapping)
		g.expectSame(second)
	})
}

func TestMetadataUpdateProse5IdenticalToInitial(t *testing.T) {
	greet(t, []metadata.Library{wrapping}, func(g greeting) {
		initial := g.document()
		g.append(wrapping)
		g.expectSame(initial)
	})
}

func TestMetadataUpdateProse6IdenticalToInitialAfterAnotherUpdate(t *testing.T) {
	greet(t, []metadata.Library{wrapping}, func(g greeting) {
		g.append(onTop)
		updated := g.document()
		g.append(wrapping)
		g.expectSame(updated)
	})
}

// partial are libraries with a field that is unset, which is the empty string here.
var partial = []metadata.Library{
	{Name: "library", Version: "", Platform: "Library Platform"},
	{Name: "library", Version: "1.2", Platform: ""},
}

func TestMetadataUpdateProse7EmptyStringsAreUnsetInDuplicates(t *testing.T) {
	for _, lib := range partial {
		greet(t, nil, func(g greeting) {
			own := g.document()
			g.append(lib)
			updated := g.document()
			g.expectAppended(own, updated, lib)
			g.append(lib)
			g.expectSame(updated)
		})
	}
}

func TestMetadataUpdateProse8EmptyStringsAreUnsetInInitialMetadata(t *testing.T) {
	for _, lib := range partial {
		greet(t, []metadata.Library{lib}, func(g greeting) {
			initial := g.document()
			g.append(lib)
			g.expectSame(initial)
		})
	}
}

func TestMetadataUpdateProse9HandshakesIncludeBackpressure(t *testing.T) {
	greet(t, nil, func(g greeting) {
		g.document()
		handshakes := 0
		for _, cmd := range g.server.Commands("isMaster", "hello") {
			if !cmd.Body.Has("client") {
				continue
			}
			handshakes++
			if v, _ := cmd.Body.Lookup("backpressure"); !v.Equal(bson.StringValue("2")) {
				t.Errorf("backpressure = %v, want \"2\"", v)
			}
		}
		if handshakes != 2 {
			t.Errorf("%d handshakes, want the monitor's and one of the pool", handshakes)
		}
	})
}

// TestAppendMetadataRefuses checks that a library with the delimiter in it is an error and changes
// nothing, when a client is made and later.
func TestAppendMetadataRefuses(t *testing.T) {
	greet(t, []metadata.Library{wrapping}, func(g greeting) {
		initial := g.document()
		for _, lib := range []metadata.Library{
			{Name: "a|b"}, {Name: "a", Version: "1|2"}, {Name: "a", Platform: "|"}, {Version: "1"},
		} {
			if err := g.client.AppendMetadata(lib); err == nil {
				t.Errorf("AppendMetadata(%+v): no error", lib)
			}
			cfg := connstring.Config{Hosts: []address.Address{"a:27017"}}
			if _, err := client.New(cfg,
				client.Options{Libraries: []metadata.Library{lib}}); err == nil {
				t.Errorf("New() with %+v: no error", lib)
			}
		}
		g.expectSame(initial)
	})
}

// TestAppendMetadataBeforeStart checks that a client whose servers are looked up when it starts
// keeps what was appended before.
func TestAppendMetadataBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := connstring.Parse("mongodb+srv://db.example.com/?tls=false")
		if err != nil {
			t.Fatal(err)
		}
		server := fakemongo.NewServer(t,
			fakemongo.Handlers{"hello": helloWith(t, `{"msg": "isdbgrid", "maxWireVersion": 21}`)})
		c, err := client.New(cfg,
			client.Options{Dialer: server.Dial, Resolver: &zone{hosts: []string{"a"}}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(context.Background()) }() //nolint:usetesting // the test's own context may be over
		if err := c.AppendMetadata(wrapping); err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, cmd := range server.Commands("isMaster", "hello") {
			if v, ok := cmd.Body.Lookup("client"); ok {
				d, _ := v.Document()
				if got := fieldText(d, "driver.name"); got != "mooring|library" {
					t.Errorf("driver.name = %q", got)
				}
			}
		}
	})
}

// TestDriverVersion checks that servers see the version of the build.
func TestDriverVersion(t *testing.T) {
	for _, d := range clientDocuments(t, connstring.Config{},
		client.Options{Version: "v1.2.3", Libraries: []metadata.Library{wrapping}}) {
		if got := fieldText(d, "driver.version"); got != "v1.2.3|1.2" {
			t.Errorf("driver.version = %q", got)
		}
	}
}
