import { useEffect, useRef, useState } from 'preact/hooks';
import { session, signOut } from './api';
import { namespaces, type Namespace } from './names';
import { linkTo } from './router';

interface Entry {
  title: string;
  /** go is an address of the page, or what is to be done. */
  go: string | (() => void);
}

const most = 12;

/**
 * Palette finds views and collections by their names: Ctrl-K or the button opens it, arrows choose,
 * Enter goes there.
 */
export function Palette({ views }: { views: [name: string, title: string][] }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [open, setOpen] = useState(false);
  const [search, setSearch] = useState('');
  const [at, setAt] = useState(0);
  const [collections, setCollections] = useState<Namespace[]>([]);

  useEffect(() => {
    const key = (e: KeyboardEvent): void => {
      if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === 'k') {
        e.preventDefault();
        if (!document.querySelector('dialog[open]')) setOpen(true);
      }
    };
    addEventListener('keydown', key);
    return () => removeEventListener('keydown', key);
  }, []);
  useEffect(() => {
    if (!open) return;
    dialog.current!.showModal();
    setSearch('');
    setAt(0);
    void namespaces().then(setCollections);
  }, [open]);

  const entries: Entry[] = [
    ...views.map(([name, title]) => ({ title, go: linkTo(name) })),
    ...collections.flatMap(([db, name]) => [
      { title: `Query ${db}.${name}`, go: linkTo('query', { db, in: name }) },
      { title: `Follow ${db}.${name}`, go: linkTo('tail', { db, in: name }) },
      { title: `Held on ${db}.${name}`, go: linkTo('held', { namespace: `${db}.${name}` }) },
    ]),
    ...(session.value === 'signed-in' ? [{ title: 'Sign out', go: signOut }] : []),
  ];
  const words = search.toLowerCase().split(/\s+/);
  const found = entries.filter((e) => words.every((w) => e.title.toLowerCase().includes(w))).slice(0, most);
  const chosen = Math.min(at, found.length - 1);
  const go = (e: Entry | undefined): void => {
    if (!e) return;
    setOpen(false);
    if (typeof e.go === 'string') location.hash = e.go;
    else e.go();
  };
  return (
    <>
      <button type="button" class="quiet" aria-haspopup="dialog" onClick={() => setOpen(true)}>
        Go to … <kbd>Ctrl K</kbd>
      </button>
      {open && (
        <dialog ref={dialog} class="palette" aria-label="Go to" onClose={() => setOpen(false)}>
          <input
            role="combobox"
            aria-label="A view or a collection"
            aria-expanded={found.length > 0}
            aria-controls="palette"
            aria-activedescendant={found.length > 0 ? `palette-${chosen}` : undefined}
            aria-autocomplete="list"
            placeholder="A view or a collection"
            autocomplete="off"
            spellcheck={false}
            value={search}
            onInput={(e) => {
              setSearch(e.currentTarget.value);
              setAt(0);
            }}
            onKeyDown={(e) => {
              const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
              if (step !== undefined && found.length > 0) {
                e.preventDefault();
                setAt((chosen + step + found.length) % found.length);
              } else if (e.key === 'Enter') {
                e.preventDefault();
                go(found[chosen]);
              }
            }}
          />
          <ul id="palette" role="listbox" aria-label="Found">
            {found.map((e, i) => (
              <li key={e.title} id={`palette-${i}`} role="option" aria-selected={i === chosen} onClick={() => go(e)}>
                {e.title}
              </li>
            ))}
          </ul>
          {found.length === 0 && <p class="muted">Nothing has these words.</p>}
        </dialog>
      )}
    </>
  );
}
