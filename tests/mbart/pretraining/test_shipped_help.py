"""The shipped model that has read real text, on sentences that were written for this test."""

import json

import pytest
import torch
from transformers import AutoTokenizer, MBart50Tokenizer, MBartForConditionalGeneration

from course_lib import files
from course_lib.mbart.model import HELP, SHIPPED, load
from course_lib.mbart.pretraining.config import TextConfig
from course_lib.mbart.pretraining.pretrain import random_model
from course_lib.mbart.pretraining.text_scores import held_out_text_scores

WRITTEN = {
    "en_XX": [
        "Click the button to close the window.",
        "Select the cell and enter a number.",
        "The table contains three columns.",
        "Choose a color for the background of the page.",
        "Save the document before you print it.",
        "The file cannot be opened.",
        "Drag the picture to another slide.",
        "Enter a name for the new style.",
        "This function returns the sum of all values.",
        "Delete the selected rows.",
        "The chart shows the data of the table.",
        "You can change the font of the text.",
    ],
    "de_DE": [
        "Klicken Sie auf die Schaltfläche, um das Fenster zu schließen.",
        "Wählen Sie die Zelle aus und geben Sie eine Zahl ein.",
        "Die Tabelle enthält drei Spalten.",
        "Wählen Sie eine Farbe für den Hintergrund der Seite.",
        "Speichern Sie das Dokument, bevor Sie es drucken.",
        "Die Datei kann nicht geöffnet werden.",
        "Ziehen Sie das Bild auf eine andere Folie.",
        "Geben Sie einen Namen für die neue Vorlage ein.",
        "Diese Funktion gibt die Summe aller Werte zurück.",
        "Löschen Sie die ausgewählten Zeilen.",
        "Das Diagramm zeigt die Daten der Tabelle.",
        "Sie können die Schriftart des Textes ändern.",
    ],
    "fr_XX": [
        "Cliquez sur le bouton pour fermer la fenêtre.",
        "Sélectionnez la cellule et saisissez un nombre.",
        "Le tableau contient trois colonnes.",
        "Choisissez une couleur pour l'arrière-plan de la page.",
        "Enregistrez le document avant de l'imprimer.",
        "Le fichier ne peut pas être ouvert.",
        "Faites glisser l'image vers une autre diapo.",
        "Saisissez un nom pour le nouveau style.",
        "Cette fonction renvoie la somme de toutes les valeurs.",
        "Supprimez les lignes sélectionnées.",
        "Le diagramme affiche les données du tableau.",
        "Vous pouvez modifier la police du texte.",
    ],
    "es_XX": [
        "Pulse en el botón para cerrar la ventana.",
        "Seleccione la celda y escriba un número.",
        "La tabla contiene tres columnas.",
        "Elija un color para el fondo de la página.",
        "Guarde el documento antes de imprimirlo.",
        "No se puede abrir el archivo.",
        "Arrastre la imagen a otra diapositiva.",
        "Escriba un nombre para el estilo nuevo.",
        "Esta función devuelve la suma de todos los valores.",
        "Elimine las filas seleccionadas.",
        "El gráfico muestra los datos de la tabla.",
        "Puede cambiar el tipo de letra del texto.",
    ],
}


@pytest.fixture(scope="module")
def shipped():
    return load(HELP)


@pytest.fixture(scope="module")
def claimed():
    return json.loads((SHIPPED[HELP] / "scores.json").read_text())


def test_it_loads_through_plain_transformers_and_is_as_it_was_written(shipped):
    directory = SHIPPED[HELP]
    files.check_sums(directory)
    model = MBartForConditionalGeneration.from_pretrained(directory)
    assert model.dtype == torch.float16
    assert isinstance(AutoTokenizer.from_pretrained(directory), MBart50Tokenizer)
    for plain, ours in zip(model.float().parameters(), shipped[0].parameters(), strict=True):
        assert torch.equal(plain, ours)
    assert model.num_parameters() <= 10_000_000
    assert model.config.vocab_size <= 8000 + 54
    assert sum(path.stat().st_size for path in directory.iterdir()) <= 20 * 10**6


def test_it_was_made_with_the_default_configuration_and_its_card_says_its_scores(claimed):
    made = json.loads((SHIPPED[HELP] / "pretrain.json").read_text())
    filled = {name: made.pop(name) for name in ("text", "languages", "n_meanings")}
    assert filled["languages"] == list(WRITTEN)
    assert made == {name: value for name, value in TextConfig().__dict__.items() if name not in filled}
    card = (SHIPPED[HELP] / "README.md").read_text(encoding="utf-8")
    assert "Mozilla Public License 2.0" in card
    assert (
        f"| {claimed['chrf']:.1f} | {claimed['random_weights_chrf']:.1f} | {claimed['chrf_copied']:.1f} |"
        in card
    )
    for name in ("translation_loss", "retrieval", "denoising_loss"):
        assert f"| {claimed[name]:.3f} | {claimed['random_weights_' + name]:.3f} |" in card
    # What it was to reach on 1,000 held-out paragraphs.
    assert claimed["retrieval"] >= 0.9
    assert claimed["chrf"] >= claimed["chrf_copied"] + 20


def test_it_translates_and_finds_translations_as_its_card_says(shipped, claimed):
    pytest.importorskip("sacrebleu")
    model, tokenizer = shipped
    untrained = random_model(TextConfig(), tokenizer, seed=1).eval()
    trained, random = (
        held_out_text_scores(each, tokenizer, TextConfig(), WRITTEN, n_scored=12)
        for each in (model, untrained)
    )
    # These sentences are easier than the card's: short, and among 12 instead of 1,000.
    assert trained["retrieval"] > claimed["retrieval"] - 0.02
    assert trained["chrf"] > max(claimed["chrf"], trained["chrf_copied"] + 20)
    assert trained["translation_loss"] < claimed["translation_loss"] < random["translation_loss"] - 5
    assert random["chrf"] < trained["chrf_copied"]
    assert random["retrieval"] < trained["retrieval"]
