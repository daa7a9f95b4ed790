// What a person has filled in and not sent: kept at the broker for the same person, and in this tab for the choices, which the
// broker does not keep. What is filled in for a sensitive question stays in memory.
import { createStore } from '../lib/store.js';
import { draftText, partsOfDraft } from './model.js';
import { loadDraft, saveDraft } from './session.js';

const SAVE_EVERY_MS = 1_500;
const KEY = 'mcp-broker-desk-draft ';

const drafts = new Map();

// The draft of a question: `store` has `{parts, images}`.
export function draftOf(question) {
  const id = question.question_id;
  if (!drafts.has(id)) drafts.set(id, createDraft(question));
  return drafts.get(id);
}

// Whether the person has filled in anything for a question.
export const hasDraft = (id) => drafts.has(id);

function createDraft(question) {
  const id = question.question_id;
  const isKept = !question.sensitive;
  const local = (isKept && readLocal(id)) || { parts: {}, saved: '' };
  const store = createStore({ parts: local.parts, images: [] });
  let { saved } = local;
  let isTouched = false;
  let timer = 0;
  let isSaving = false;

  const save = async (isLast = false) => {
    clearTimeout(timer);
    timer = 0;
    const text = draftText(question, store.get().parts);
    if (!isKept || text === saved || (isSaving && !isLast)) return;
    isSaving = true;
    try {
      await saveDraft(id, text, isLast);
      saved = text;
      writeLocal(id, { parts: store.get().parts, saved });
    } catch {
      // The next change tries again; this tab has the text.
    } finally {
      isSaving = false;
    }
    if (drafts.get(id)?.store === store && draftText(question, store.get().parts) !== saved) plan();
  };
  const plan = () => { timer ||= setTimeout(save, SAVE_EVERY_MS); };

  if (isKept) {
    loadDraft(id).then((text) => {
      // A text of another console of the same person is newer than the one of this tab; what is being typed is newer still.
      if (isTouched || !text || text === saved) return;
      const restored = partsOfDraft(question, text);
      const parts = question.questions ? restored : { '': { ...restored[''], ...store.get().parts[''], text } };
      saved = text;
      store.set({ ...store.get(), parts });
    }, () => {});
  }

  return {
    store,
    change(next) {
      isTouched = true;
      store.set({ ...store.get(), ...next });
      if (!isKept) return;
      writeLocal(id, { parts: store.get().parts, saved });
      plan();
    },
    save,
    // After the person has answered or declined here.
    forget() {
      clearTimeout(timer);
      for (const { url } of store.get().images) URL.revokeObjectURL(url);
      drafts.delete(id);
      removeLocal(id);
      store.set({ parts: {}, images: [] });
    },
  };
}

addEventListener('pagehide', () => { for (const { save } of drafts.values()) save(true); });
document.addEventListener('visibilitychange', () => {
  if (document.hidden) for (const { save } of drafts.values()) save();
});

function readLocal(id) {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEY + id));
    return typeof found?.parts === 'object' && typeof found.saved === 'string' ? found : null;
  } catch {
    return null;
  }
}

function writeLocal(id, value) {
  try { sessionStorage.setItem(KEY + id, JSON.stringify(value)); } catch { /* The broker keeps the text. */ }
}

function removeLocal(id) {
  try { sessionStorage.removeItem(KEY + id); } catch { /* Nothing is kept. */ }
}
