package bson_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/mooringdb/mooring/core/bson"
)

func TestObjectIDTime(t *testing.T) {
	for hex, want := range map[string]string{
		"00000000": "1970-01-01T00:00:00Z",
		"7FFFFFFF": "2038-01-19T03:14:07Z",
		"80000000": "2038-01-19T03:14:08Z",
		"FFFFFFFF": "2106-02-07T06:28:15Z",
	} {
		id, err := bson.ParseObjectID(hex + "0000000000000000")
		if err != nil {
			t.Fatal(err)
		}
		if got := id.Time().Format(time.RFC3339); got != want {
			t.Errorf("Time of %s = %s, want %s", hex, got, want)
		}
	}
}

func TestObjectIDCounter(t *testing.T) {
	now := time.Unix(0xFFFFFFFF, 0)
	a, b := bson.ObjectIDsAt(now, 0xABFFFFFE)
	if !bytes.Equal(a[9:], []byte{0xFF, 0xFF, 0xFF}) || !bytes.Equal(b[9:], []byte{0, 0, 0}) {
		t.Errorf("counters = %x, %x, want ffffff, 000000", a[9:], b[9:])
	}
	if !bytes.Equal(a[:9], b[:9]) || !bytes.Equal(a[:4], []byte{0xFF, 0xFF, 0xFF, 0xFF}) {
		t.Errorf("ids = %v, %v: want the same random bytes and time", a, b)
	}
	c, _ := bson.ObjectIDsAt(now, 0)
	if bytes.Equal(a[4:9], c[4:9]) {
		t.Error("two sources have the same random bytes")
	}
}

// A child process has random bytes of its own.
func TestObjectIDChildProcess(t *testing.T) {
	id := bson.NewObjectID()
	if os.Getenv("MOORING_TEST_CHILD") != "" {
		fmt.Fprintln(os.Stdout, "id="+id.Hex())
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestObjectIDChildProcess$")
	cmd.Env = append(os.Environ(), "MOORING_TEST_CHILD=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := bytes.Cut(out, []byte("id="))
	if !found || len(text) < 24 {
		t.Fatalf("child printed %q", out)
	}
	child, err := bson.ParseObjectID(string(text[:24]))
	if err != nil || bytes.Equal(child[4:9], id[4:9]) {
		t.Errorf("child made %v, parent %v, error %v: want other random bytes", child, id, err)
	}
}

func TestObjectIDText(t *testing.T) {
	id, err := bson.ParseObjectID("56E1fc72e0c917e9c4714161")
	if err != nil || id.String() != "56e1fc72e0c917e9c4714161" || id.IsZero() {
		t.Errorf("ParseObjectID = %v, %v", id, err)
	}
	for _, s := range []string{
		"", "56e1fc72e0c917e9c471416", "56e1fc72e0c917e9c47141610", "56e1fc72e0c917e9c471416g",
	} {
		if _, err := bson.ParseObjectID(s); err == nil {
			t.Errorf("ParseObjectID(%q) has no error", s)
		}
	}
	seen := map[bson.ObjectID]bool{}
	for range 1000 {
		seen[bson.NewObjectID()] = true
	}
	if len(seen) != 1000 {
		t.Errorf("%d of 1000 ids differ", len(seen))
	}
}

// The prose tests of the UUID specification. There is no implicit encoding here,
// as the specification demands of new drivers.
func TestUUID(t *testing.T) {
	u, err := bson.ParseUUID("00112233-4455-6677-8899-aabbccddeeff")
	if err != nil {
		t.Fatal(err)
	}
	if u.String() != "00112233-4455-6677-8899-aabbccddeeff" {
		t.Errorf("String() = %s", u)
	}
	representations := []bson.UUIDRepresentation{
		bson.UUIDUnspecified, bson.UUIDStandard, bson.UUIDJavaLegacy, bson.UUIDCSharpLegacy, bson.UUIDPythonLegacy,
	}
	for _, c := range []struct {
		r       bson.UUIDRepresentation
		name    string
		subtype byte
		hex     string
	}{
		{bson.UUIDStandard, "standard", 4, "00112233445566778899AABBCCDDEEFF"},
		{bson.UUIDJavaLegacy, "javaLegacy", 3, "7766554433221100FFEEDDCCBBAA9988"},
		{bson.UUIDCSharpLegacy, "csharpLegacy", 3, "33221100554477668899AABBCCDDEEFF"},
		{bson.UUIDPythonLegacy, "pythonLegacy", 3, "00112233445566778899AABBCCDDEEFF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.r.String() != c.name {
				t.Errorf("String() = %s", c.r)
			}
			v, err := u.Value(c.r)
			subtype, data, _ := v.Binary()
			if err != nil || subtype != c.subtype || !bytes.Equal(data, unhex(t, c.hex)) {
				t.Errorf("Value = %d %x, %v, want %d %s", subtype, data, err, c.subtype, c.hex)
			}
			for _, r := range representations {
				got, err := v.UUID(r)
				switch {
				case r == bson.UUIDUnspecified:
					if !errors.Is(err, bson.ErrUUIDUnspecified) {
						t.Errorf("UUID(%v) error = %v", r, err)
					}
				case (r == bson.UUIDStandard) != (c.subtype == 4):
					if !errors.Is(err, bson.ErrUUIDRepresentation) {
						t.Errorf("UUID(%v) error = %v", r, err)
					}
				case r == c.r:
					if err != nil || got != u {
						t.Errorf("UUID(%v) = %v, %v, want %v", r, got, err, u)
					}
				}
			}
		})
	}
	if _, err := u.Value(bson.UUIDUnspecified); !errors.Is(err, bson.ErrUUIDUnspecified) {
		t.Errorf("Value(unspecified) error = %v", err)
	}
	if _, err := bson.BinaryValue(4, []byte{1}).
		UUID(bson.UUIDStandard); !errors.Is(err, bson.ErrUUIDRepresentation) {
		t.Errorf("UUID of one byte: error = %v", err)
	}
	for _, s := range []string{
		"urn:uuid:00112233-4455-6677-8899-AABBCCDDEEFF", "00112233445566778899aabbccddeeff",
	} {
		if got, err := bson.ParseUUID(s); err != nil || got != u {
			t.Errorf("ParseUUID(%s) = %v, %v", s, got, err)
		}
	}
	for _, s := range []string{
		"", "00112233-4455-6677-8899-aabbccddeefg", "0011223-34455-6677-8899-aabbccddeeff", "00112233445566778899aabbccddeef",
	} {
		if _, err := bson.ParseUUID(s); !errors.Is(err, bson.ErrUUIDSyntax) {
			t.Errorf("ParseUUID(%q) error = %v", s, err)
		}
	}
}
