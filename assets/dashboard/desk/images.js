// Images of questions and answers. They travel as base64 in JSON and are shown from memory (`blob:`).
import { html, useEffect, useState } from '../lib/preact.js';

export const IMAGES_MAX = 4;
// Bytes of all images of an answer together, in base64.
export const BYTES_MAX = 1024 * 1024;

const TYPES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
const QUALITY = 0.85;
const SCALES = [1, 0.7, 0.5, 0.35, 0.25, 0.15];

export const bytesOf = (images) => images.reduce((sum, one) => sum + one.data.length, 0);

// Reads a pasted or chosen file: `{mime, data, url, isSmaller}`. One that is larger than `room` bytes of base64 becomes a
// smaller JPEG. Throws a sentence for the person.
export async function readImage(file, room) {
  if (TYPES.includes(file.type)) {
    const data = await base64(file);
    if (data.length <= room) return { mime: file.type, data, url: URL.createObjectURL(file), isSmaller: false };
  }
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error('This file is no image that the browser can read.');
  }
  for (const scale of SCALES) {
    const blob = await drawn(bitmap, scale);
    const data = await base64(blob);
    if (data.length <= room) return { mime: 'image/jpeg', data, url: URL.createObjectURL(blob), isSmaller: true };
  }
  throw new Error('The images of an answer may have 1 MiB together. Remove another one first.');
}

function drawn(bitmap, scale) {
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const context = canvas.getContext('2d');
  // JPEG knows no transparency.
  context.fillStyle = '#fff';
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, 'image/jpeg', QUALITY));
}

const base64 = (blob) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => {
    const url = String(reader.result);
    resolve(url.slice(url.indexOf(',') + 1));
  };
  reader.onerror = () => reject(reader.error);
  reader.readAsDataURL(blob);
});

// The images that another party has sent.
export const Images = ({ images, of }) => !!images?.length && html`<ul class="images">${images.map((image, at) => html`<li
  key=${at}><${Shown} image=${image} alt=${`Image ${at + 1} of ${of}`} /></li>`)}</ul>`;

function Shown({ image, alt }) {
  const [url, setUrl] = useState(null);
  const [isBroken, setBroken] = useState(false);
  useEffect(() => {
    const blob = blobOf(image);
    if (!blob) return setBroken(true);
    const made = URL.createObjectURL(blob);
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [image.data, image.mime]);
  if (isBroken) return html`<span class="faint">${alt} cannot be shown.</span>`;
  return url && html`<a href=${url} download=${`${alt}.${image.mime.split('/')[1]}`} title="Save the image"><img src=${url} alt=${alt}
    onError=${() => setBroken(true)} /></a>`;
}

function blobOf({ mime, data }) {
  if (!TYPES.includes(mime)) return null;
  try {
    return new Blob([Uint8Array.from(atob(data), (one) => one.charCodeAt(0))], { type: mime });
  } catch {
    return null;
  }
}
