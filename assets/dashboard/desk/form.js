// The form of an answer: options, the text in place of one, texts, images; for one question or several.
import { html, useEffect, useRef } from '../lib/preact.js';
import { bytes, visible } from '../lib/format.js';
import { announce } from '../ui/announce.js';
import { BYTES_MAX, IMAGES_MAX, bytesOf, readImage } from './images.js';
import { choseOther, chosen, itemsOf, partAt } from './model.js';
import { Lines } from './parts.js';

// Characters.
const TEXT_MAX = 64 * 1024;
const OTHER_MAX = 8_000;

// `change({parts} or {images})` is called for what the person does. `faults`: the names of questions that lack an answer.
// `isComplete`: the others of them need none, so that the person may send without them.
export function AnswerForm({ question, form, change, send, sendAsItIs, isSending, faults, isComplete, isDisabled, children }) {
  const items = itemsOf(question);
  const frame = useRef(null);
  const setPart = (id, part) => change({ parts: { ...form.parts, [id]: part } });
  const add = async (files) => {
    let images = form.images;
    for (const file of files) {
      if (images.length >= IMAGES_MAX) return announce(`An answer may have ${IMAGES_MAX} images.`);
      try {
        const image = await readImage(file, BYTES_MAX - bytesOf(images));
        images = [...images, image];
        change({ images });
        announce(image.isSmaller ? 'Image added, made smaller to fit.' : 'Image added.');
      } catch (problem) {
        announce(problem.message);
      }
    }
  };
  const onPaste = (event) => {
    const files = [...(event.clipboardData?.files ?? [])].filter((one) => one.type.startsWith('image/'));
    if (!files.length) return;
    event.preventDefault();
    add(files);
  };
  const submit = (event) => {
    event.preventDefault();
    send();
  };
  const onKeyDown = (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) submit(event);
  };
  useEffect(() => {
    if (faults.length) frame.current.querySelector('[aria-invalid="true"]')?.focus();
  }, [faults]);
  return html`<form class="answer" ref=${frame} onSubmit=${submit} onPaste=${onPaste} onKeyDown=${onKeyDown} aria-label="Answer">
    <fieldset class="plain" disabled=${isDisabled}>
    ${items.map((item, at) => html`<${Item} key=${item.id} item=${item} name=${`${question.question_id} ${item.id}`}
      isForm=${Boolean(question.questions)} isFirst=${at === 0} part=${partAt(form.parts, item.id)}
      isSensitive=${question.sensitive} isFaulty=${faults.includes(item.id)} setPart=${(part) => setPart(item.id, part)} />`)}
    ${!question.sensitive && html`<div class="attachments">
      ${form.images.map((image, at) => html`<figure key=${image.url}><img src=${image.url} alt=${`Image ${at + 1} of your answer`} />
        <figcaption class="faint">${bytes(image.data.length)}${image.isSmaller && ', made smaller'}</figcaption>
        <button type="button" class="quiet" aria-label=${`Remove image ${at + 1}`} onClick=${() => {
          URL.revokeObjectURL(image.url);
          change({ images: form.images.filter((one) => one !== image) });
        }}>Remove</button></figure>`)}
      ${form.images.length < IMAGES_MAX && html`<label class="button file">Add an image<input type="file" class="visually-hidden"
        accept="image/*" multiple onChange=${(event) => {
          add([...event.currentTarget.files]);
          event.currentTarget.value = '';
        }} /></label>`}</div>`}
    ${faults.length > 0 && (isComplete ? html`<div class="notice warn" role="alert"><p>${faults.length === 1 ? 'One question has'
        : `${faults.length} questions have`} no answer yet.</p><button type="button" onClick=${sendAsItIs}>Send without ${
        faults.length === 1 ? 'it' : 'them'}</button></div>`
      : html`<div class="notice bad" role="alert"><p>${question.questions ? 'Answer the questions that are marked.'
        : 'Choose an option or write an answer.'}</p></div>`)}
    <div class="buttons"><button type="submit" class="primary" title="Send the answer (Ctrl+Enter)">${isSending ? 'Sending…'
      : 'Send'}</button>${children}<span class="spacer" /><span class="faint hint"><kbd>Ctrl</kbd> <kbd>Enter</kbd> sends</span></div>
    </fieldset></form>`;
}

function Item({ item, name, isForm, isFirst, part, isSensitive, isFaulty, setPart }) {
  const kind = item.multi_select ? 'checkbox' : 'radio';
  const hasOptions = item.options.length > 0;
  const invalid = isFaulty ? 'true' : undefined;
  const textLabel = hasOptions ? 'Note (optional)' : isForm ? 'Answer' : 'Your answer';
  const text = html`<label class="text"><span class=${isForm && !hasOptions ? 'visually-hidden' : ''}>${textLabel}</span><textarea value=${part.text} maxlength=${TEXT_MAX} rows="3"
    data-text=${isFirst ? '' : undefined} aria-invalid=${hasOptions ? undefined : invalid} autocomplete="off" spellcheck=${!isSensitive}
    onInput=${(event) => setPart({ ...part, text: event.currentTarget.value })} /></label>`;
  if (!hasOptions && !isForm) return text;
  return html`<fieldset class=${`item${isFaulty ? ' faulty' : ''}`}><legend class=${isForm ? '' : 'visually-hidden'}>${isForm
    ? html`<${Lines} value=${item.question} />` : 'Options'}${isForm && item.required && html`<span class="faint"> (required)</span>`}</legend>
    ${hasOptions && html`<div class="options">${item.options.map((option, at) => html`<label key=${option.value} class="option"><input
      type=${kind} name=${name} checked=${part.selected.includes(option.value)} aria-invalid=${at === 0 ? invalid : undefined}
      data-key=${isFirst && at < 9 ? at + 1 : undefined} onChange=${() => setPart(chosen(part, item, option.value))} />
      <span><bdi>${visible(option.label, 200)}</bdi>${option.description && html`<${Lines} class="faint" value=${option.description} />`}</span>
      ${isFirst && at < 9 && html`<kbd aria-hidden="true">${at + 1}</kbd>`}</label>`)}
      ${item.allow_other !== false && html`<div class="option other"><input type=${kind} name=${name} checked=${part.isOther}
        aria-label="Another answer" onChange=${() => setPart(choseOther(part, item))} /><input type="text" value=${part.other}
        maxlength=${OTHER_MAX} placeholder="Another answer" aria-label="Text of another answer" autocomplete="off"
        onInput=${(event) => setPart({ ...choseOther(part, item, true), other: event.currentTarget.value })} /></div>`}</div>`}
    ${text}</fieldset>`;
}
